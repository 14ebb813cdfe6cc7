"""Scores and generations -> per-item results. REQUIRED INPUTS: resources/items/, results/requests/,
results/{model}/scores|generations/. OUTPUTS: results/{model}/similarity/{evaluation}.parquet,
results/{model}/tasks/{evaluation}.parquet, results/{model}/metrics.parquet, results/exports/{model}/{evaluation}/,
results/judges/{judge}/{model}/. These rules load no evaluated model, except for a judge.
"""


# fetch the files of one encoder and record its properties
rule encoder:
    input:
        records=lambda wildcards: records(f"resources/encoders/{wildcards.encoder}.json"),
    output:
        "resources/encoders/{encoder}.json",
    log:
        "logs/encoder/{encoder}.log",
    benchmark:
        f"{BENCHMARKS}/encoder/{{encoder}}.tsv"
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("fetch", specs.encoder_spec(CONFIG, wildcards.encoder)),
        files=lambda wildcards, input, output: files(input, out=output[0]),
    message:
        "encoder: fetch {wildcards.encoder} and record its properties"
    shell:
        stage("encoder")


# compute the similarity of one model's generations to every option; each distinct text is embedded once, and files that
# are up to date are kept, so that adding an evaluation computes only that evaluation. One process per model: one for all
# would wait for the slowest model, and adding a model would repeat the metrics of all others
rule similarity:
    input:
        model="resources/models/{model}.json",
        encoders=expand("resources/encoders/{encoder}.json", encoder=CONFIG.encoders),
        data=items_files(settings.COMPARED),
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet"), settings.COMPARED),
        generations=expand_evaluations(in_output("{{model}}/generations/{evaluation}.parquet"), settings.COMPARED),
    output:
        update(expand_evaluations(in_output("{{model}}/similarity/{evaluation}.parquet"), settings.COMPARED)),
    log:
        "logs/similarity/{model}.log",
    benchmark:
        f"{BENCHMARKS}/similarity/{{model}}.tsv"
    conda:
        "../../envs/models.yaml"
    threads: similarity_threads
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
        gpu=lambda wildcards: int(CONFIG.models[wildcards.model]["device"] != "cpu"),
    params:
        spec=spec("similarity", specs.similarity_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input,
            "model",
            "encoders",
            "items_dir",
            "requests_dir",
            "generations",
            out=above(output[0]),
            store=CONFIG.store,
        ),
    message:
        "similarity: compute the similarity of the outputs of {wildcards.model} to the options"
    shell:
        stage("similarity")


# requests to a judge about the texts of one model at a time, and its outputs, which are in the store: a rule per judge,
# because its evaluations are its own
for judge in CONFIG.judges:

    # write what the judge is asked about the texts of one model
    rule:
        name:
            f"judge_requests_{judge}"
        input:
            data=items_files(settings.JUDGED),
            requests=expand_evaluations(in_output("requests/{evaluation}.parquet"), settings.JUDGED),
            generations=functools.partial(judged_texts, judge=judge),
        output:
            update(judge_files(judge, "requests")),
        log:
            f"logs/judge_requests/{judge}/{{model}}.log",
        benchmark:
            f"{BENCHMARKS}/judge_requests/{{model}}.{judge}.tsv"
        wildcard_constraints:
            model=any_of(CONFIG.judges[judge].models),
        localrule: True
        conda:
            "../../envs/tables.yaml"
        resources:
            try_number=attempt_label,
            mem_mb=lambda wildcards, attempt: 3000 * attempt,
            runtime=60,
        params:
            spec=functools.partial(judge_requests_spec, judge=judge),
            files=lambda wildcards, input, output: files(
                input, "items_dir", "requests_dir", results=above(input.generations[0], 3), out=above(output[0])
            ),
        message:
            f"judge_requests: write what {judge} is asked about {{wildcards.model}}"
        shell:
            stage("judge-requests")

    # write the outputs of the judge about one model
    rule:
        name:
            f"judge_collect_{judge}"
        input:
            model=f"resources/models/{CONFIG.judges[judge].model}.json",
            requests=judge_files(judge, "requests"),
            status=in_output(f"judges/{judge}/{{model}}/inference_status/1of1.json"),
        output:
            judge_files(judge),
        log:
            f"logs/judge_collect/{judge}/{{model}}.log",
        benchmark:
            f"{BENCHMARKS}/judge_collect/{{model}}.{judge}.tsv"
        wildcard_constraints:
            model=any_of(CONFIG.judges[judge].models),
        localrule: True
        conda:
            "../../envs/models.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 3000 * attempt,
            runtime=60,
        params:
            spec=spec("collect", specs.inference_spec(CONFIG, [CONFIG.judges[judge].model])),
            files=lambda wildcards, input, output: files(
                input, "model", "requests", status=[input.status], out=above(output[0], 2), store=CONFIG.store
            ),
        message:
            f"judge_collect: write the outputs of {judge} about {{wildcards.model}}"
        shell:
            stage("collect", has_attempts=False)


# let a judge read the texts of one model, with the engine of its own
rule judge:
    input:
        models=judge_record,
        requests=judge_requests,
    output:
        in_output("judges/{judge}/{model}/inference_status/1of1.json"),
    log:
        "logs/judge/{judge}/{model}.log",
    benchmark:
        f"{BENCHMARKS}/judge/{{model}}.{{judge}}.tsv"
    wildcard_constraints:
        judge=any_of(name for name, judge in CONFIG.judges.items() if judge.model not in CONFIG.servers),
    conda:
        "../../envs/models.yaml"
    threads: judge_threads
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, input, attempt: estimates.memory_mb(
            input.models[0], judge_settings(wildcards), attempt
        ),
        runtime=lambda wildcards, input, attempt: estimates.minutes(
            input.models, input.requests, judge_settings(wildcards), attempt
        ),
        gpu=lambda wildcards, input: estimates.gpus(input.models[0], judge_settings(wildcards), CONFIG.gpu_memory_gb),
    params:
        spec=lambda wildcards: spec(
            "infer", specs.inference_spec(CONFIG, [CONFIG.judges[wildcards.judge].model]), libraries={}
        ),
        files=lambda wildcards, input, output: files(input, "models", "requests", out=output[0], store=CONFIG.store),
    message:
        "judge: let {wildcards.judge} judge {wildcards.model}, except for outputs in the store"
    shell:
        stage("infer")


# let a judge behind a server read the texts of one model
rule judge_server:
    input:
        models=judge_record,
        requests=judge_requests,
    output:
        in_output("judges/{judge}/{model}/inference_status/1of1.json"),
    log:
        "logs/judge_server/{judge}/{model}.log",
    benchmark:
        f"{BENCHMARKS}/judge_server/{{model}}.{{judge}}.tsv"
    wildcard_constraints:
        judge=any_of(name for name, judge in CONFIG.judges.items() if judge.model in CONFIG.servers),
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=7 * 24 * 60,
    params:
        spec=lambda wildcards: spec(
            "infer", specs.inference_spec(CONFIG, [CONFIG.judges[wildcards.judge].model]), libraries={}
        ),
        files=lambda wildcards, input, output: files(input, "models", "requests", out=output[0], store=CONFIG.store),
    message:
        "judge_server: let {wildcards.judge} judge {wildcards.model} behind its server, except for outputs in the store"
    shell:
        stage("infer")


# compute the result of every item of one model, and the aggregated values
rule metrics:
    input:
        model="resources/models/{model}.json",
        data=items_files(),
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
        answers=[
            *OUTPUTS,
            *expand_evaluations(in_output("{{model}}/similarity/{evaluation}.parquet"), settings.COMPARED),
            *expand_evaluations(in_output("{{model}}/lm_eval/{evaluation}.parquet"), settings.TOOL_PROTOCOLS),
        ],
        judges=judges_of,
    output:
        update(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet"))),
        metrics=update(in_output("{model}/metrics.parquet")),
        tokens=update(in_output("{model}/tokens.parquet")),
    log:
        "logs/metrics/{model}.log",
    benchmark:
        f"{BENCHMARKS}/metrics/{{model}}.tsv"
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("metrics", specs.metrics_spec(CONFIG, wildcards.model)),
        files=lambda wildcards, input, output: files(
            input, "model", "items_dir", "requests_dir", out=above(output[0], 2)
        ),
    message:
        "metrics: compute the per-item results and metrics of {wildcards.model}"
    shell:
        stage("metrics")


# export the results of one model in the formats of the PalmX, Serbian cloze and Grew-TSE scripts
rule export:
    input:
        data=items_files(settings.EXPORTED),
        tasks=expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet"), settings.EXPORTED),
    output:
        # one directory per evaluation: those of evaluations that are not in the config are kept
        *map(as_output, expand_evaluations(in_output("exports/{{model}}/{evaluation}"), settings.EXPORTED)),
    log:
        "logs/export/{model}.log",
    benchmark:
        f"{BENCHMARKS}/export/{{model}}.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        spec=spec("export", specs.export_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input, "items_dir", "tasks", out=above(written_directory(output[0]))
        ),
    message:
        "export: write the results of {wildcards.model} in the formats of the source tools"
    shell:
        stage("export", has_attempts=False)

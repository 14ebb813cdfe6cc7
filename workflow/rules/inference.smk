"""Requests -> scores and generations. REQUIRED INPUTS: results/requests/. OUTPUTS: resources/models/{model}.json,
results/inference_status/{base}/{shard}.json, results/{model}/scores/{evaluation}.parquet,
results/{model}/generations/{evaluation}.parquet.

One job per base and its adapters (or per shard of their work) looks up each evaluation in the store (`store:` in the
config, results/store by default), loads the model only if an output is missing, and adds new outputs to the store. Rule
`collect` writes them from there to the results. The path of the store is in no key, because it changes no output.

Models behind a server have rules of their own, `server` and `infer_server`, which run where Snakemake runs and need no
GPU. Jobs of several models on one server share its limit of concurrent requests.
"""


# fetch the files of one model, pinned to a revision, and record its properties
rule model:
    input:
        unpack(base_record),
        records=lambda wildcards: records(f"resources/models/{wildcards.model}.json"),
    output:
        "resources/models/{model}.json",
    log:
        "logs/model/{model}.log",
    benchmark:
        f"{BENCHMARKS}/model/{{model}}.tsv"
    wildcard_constraints:
        model=any_of(name for name in CONFIG.models if name not in CONFIG.servers),
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("fetch", specs.model_spec(CONFIG, wildcards.model)),
        files=lambda wildcards, input, output: files(input, base=input.get("base"), out=output[0]),
    message:
        "model: fetch {wildcards.model} and record its properties"
    shell:
        stage("model")


# probe a server and record what its model can answer
rule server:
    input:
        records=lambda wildcards: records(f"resources/models/{wildcards.model}.json"),
    output:
        "resources/models/{model}.json",
    log:
        "logs/server/{model}.log",
    benchmark:
        f"{BENCHMARKS}/server/{{model}}.tsv"
    wildcard_constraints:
        model=any_of(CONFIG.servers),
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("server", specs.server_spec(CONFIG, wildcards.model)),
        files=lambda wildcards, input, output: files(input, out=output[0]),
    message:
        "server: probe the server of {wildcards.model}"
    shell:
        stage("server")


# run all evaluations of one base and its adapters, with the base loaded once
rule infer:
    input:
        models=record_files,
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
    output:
        in_output("inference_status/{base}/{shard}.json"),
    log:
        "logs/infer/{base}.{shard}.log",
    benchmark:
        f"{BENCHMARKS}/infer/{{base}}.{{shard}}.tsv"
    wildcard_constraints:
        base=any_of(name for name in CONFIG.bases if name not in CONFIG.servers),
    conda:
        "../../envs/models.yaml"
    threads: infer_threads
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, input, attempt: estimates.memory_mb(input.models[0], base_settings(wildcards), attempt),
        runtime=lambda wildcards, input, attempt: estimates.minutes(
            input.models, input.requests, base_settings(wildcards), attempt
        ),
        gpu=lambda wildcards, input: estimates.gpus(input.models[0], base_settings(wildcards), CONFIG.gpu_memory_gb),
    params:
        spec=lambda wildcards: spec("infer", specs.inference_spec(CONFIG, CONFIG.bases[wildcards.base]), libraries={}),
        files=lambda wildcards, input, output: files(
            input, "models", "requests", shard=wildcards.shard, out=output[0], store=CONFIG.store
        ),
    message:
        "infer: evaluate {wildcards.base} (shard {wildcards.shard}), except for outputs in the store"
    shell:
        stage("infer")


# run all evaluations of one model behind a server
rule infer_server:
    input:
        models=record_files,
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
    output:
        in_output("inference_status/{base}/{shard}.json"),
    log:
        "logs/infer_server/{base}.{shard}.log",
    benchmark:
        f"{BENCHMARKS}/infer_server/{{base}}.{{shard}}.tsv"
    wildcard_constraints:
        base=any_of(CONFIG.servers),
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=7 * 24 * 60,
    params:
        spec=lambda wildcards: spec("infer", specs.inference_spec(CONFIG, [wildcards.base]), libraries={}),
        files=lambda wildcards, input, output: files(
            input, "models", "requests", shard=wildcards.shard, out=output[0], store=CONFIG.store
        ),
    message:
        "infer_server: evaluate {wildcards.base} behind its server, except for outputs in the store"
    shell:
        stage("infer")


# write the outputs of one model, one file per evaluation
rule collect:
    input:
        model="resources/models/{model}.json",
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
        status=status_files,
    output:
        OUTPUTS,
    log:
        "logs/collect/{model}.log",
    benchmark:
        f"{BENCHMARKS}/collect/{{model}}.tsv"
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("collect", specs.inference_spec(CONFIG, [wildcards.model])),
        files=lambda wildcards, input, output: files(
            input, "model", "requests", "status", out=above(output[0], 2), store=CONFIG.store
        ),
    message:
        "collect: write the outputs of {wildcards.model}"
    shell:
        stage("collect", has_attempts=False)

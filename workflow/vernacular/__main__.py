import gc
import os
import signal
import sys

# scancel and the end of a job's time as Ctrl-C, so that no half-written file stays; infer has its own way
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    from vernacular.cli import main

    status = main(supervised=True)
except KeyboardInterrupt:  # before the verb had begun
    print("stopped; the next run begins here.", file=sys.stderr)
    status = 130
if status == 130:  # stopped by hand: a download's threads would be waited for until their files are whole
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
gc.freeze()  # with torch loaded, to walk through all that is left takes Python a second and a half at its end
sys.exit(status)

import os
import signal
import sys

# handle SIGTERM (scancel, time limit of a job) like Ctrl-C: no partial file remains; infer has its own handler
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    from vernacular.cli import main
    from vernacular.core.logs import Escaped

    sys.stdout, sys.stderr = Escaped(sys.stdout), Escaped(sys.stderr)  # also for the traceback of a bug
    status = main(supervised=True)
except KeyboardInterrupt:  # before the command started
    print("Interrupted. Run the same command again to repeat it.", file=sys.stderr)
    status = 130
if status == 130:  # a normal exit would wait until the threads of a download have completed their files
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
sys.exit(status)

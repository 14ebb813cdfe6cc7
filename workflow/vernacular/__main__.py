import gc
import sys

try:
    from vernacular.cli import main

    status = main()
except KeyboardInterrupt:  # before the verb had begun
    print("stopped; the next run begins here.", file=sys.stderr)
    status = 130
gc.freeze()  # with torch loaded, to walk through all that is left takes Python a second and a half at its end
sys.exit(status)

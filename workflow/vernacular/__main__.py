import sys

try:
    from vernacular.cli import main

    status = main()
except KeyboardInterrupt:  # before the verb had begun
    print("stopped; the next run begins here.", file=sys.stderr)
    status = 130
sys.exit(status)

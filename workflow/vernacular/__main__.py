import sys

from vernacular.cli import main

sys.exit(main())

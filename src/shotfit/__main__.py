"""`python -m shotfit`: the command line without an installed script."""

from shotfit.apps.cli import main

if __name__ == "__main__":
    main()

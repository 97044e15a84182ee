"""`./run lab`: the command line of the lab."""

from lab.cli import main

if __name__ == "__main__":
    main()

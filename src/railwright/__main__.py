"""`python -m railwright`: the command where the script's folder is not on the path."""

from railwright.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m kept`."""

from kept.ui.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m cli`: the `treadle` command where the package is not installed, as in an image."""

from cli.main import main

if __name__ == "__main__":
    main(prog_name="treadle")

"""`python -m headrace` is the same as `headrace`."""

from headrace_command import main

if __name__ == "__main__":
    main()

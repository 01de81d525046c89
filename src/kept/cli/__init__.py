"""The command line: parse, call the library, render. One module a command."""

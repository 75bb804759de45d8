"""Commands, one file each: the file name is the command's name, its function or `app` the command.

Nothing heavy is imported at the top of these files, so that `shotfit --help` is instant.
"""

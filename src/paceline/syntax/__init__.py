"""Python source as data: files, scopes, bindings and the values that expressions can have. Standard library only."""

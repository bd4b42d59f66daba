"""What tests of code that uses keepstate, and of backends for it, are made from."""

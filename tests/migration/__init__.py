"""The guides of docs/migration, rehearsed: the tests run the commands that the guides print."""

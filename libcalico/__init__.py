"""The data model, the datastore clients and the small tools that every process shares."""

"""What felix reads of the datastore, record by record."""

"""What went wrong in this field before, each tried with packets and shown impossible here."""

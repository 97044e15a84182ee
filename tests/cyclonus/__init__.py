"""230 cases after the generator of Cyclonus, in nine families, with packets and two oracles."""

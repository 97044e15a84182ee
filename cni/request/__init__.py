"""A CNI call as a value: configuration, arguments, previous result, errors, result."""

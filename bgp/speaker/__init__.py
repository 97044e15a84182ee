"""BGP speakers behind one interface: two methods and an event stream."""

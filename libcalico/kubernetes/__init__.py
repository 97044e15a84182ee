"""A small asynchronous client of the Kubernetes API: get, list in pages, watch, follow, write.

Node agents use it: asyncio, ssl and msgspec are all that it imports, for their memory and start
time count on every node. `access` has address and credentials, `client` makes requests,
`reflector` keeps a list true, `objects` are the few fields that we read.
"""

"""What felix believes behind etcd proxies that fail, and behind a backup."""

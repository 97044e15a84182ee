// coredns is CoreDNS with the plugins that the names of a cluster need, and no others.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// The order in which a question passes the plugins.
	dnsserver.Directives = []string{"health", "ready", "errors", "cache", "kubernetes"}
}

func main() { coremain.Run() }

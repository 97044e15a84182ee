// A runtime of a few lines around the real libcni: one verb on one list, then it ends.
//
//	libcni_driver VERB < {"dir": .., "network": .., "bin": [..], "cache": .., "container": ..,
//	                      "netns": .., "ifname": .., "args": [[k, v]], "capabilities": {..},
//	                      "valid": [{"containerID": .., "ifname": ..}]}
//
// The result is on stdout; an error on stderr, and status 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

type order struct {
	Dir, Network, Cache      string
	Bin                      []string
	Container, Netns, Ifname string
	Args                     [][2]string
	Capabilities             map[string]any
	Valid                    []types.GCAttachment
}

func serve(verb string, o order) error {
	ctx := context.Background()
	list, err := libcni.LoadNetworkConf(o.Dir, o.Network)
	if err != nil {
		return err
	}
	client := libcni.NewCNIConfigWithCacheDir(o.Bin, o.Cache, nil)
	attachment := &libcni.RuntimeConf{
		ContainerID: o.Container, NetNS: o.Netns, IfName: o.Ifname,
		Args: o.Args, CapabilityArgs: o.Capabilities,
	}
	switch verb {
	case "add":
		result, err := client.AddNetworkList(ctx, list, attachment)
		if err != nil {
			return err
		}
		return result.PrintTo(os.Stdout)
	case "check":
		return client.CheckNetworkList(ctx, list, attachment)
	case "del":
		return client.DelNetworkList(ctx, list, attachment)
	case "gc":
		return client.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: o.Valid})
	case "status":
		return client.GetStatusNetworkList(ctx, list)
	case "validate":
		_, err := client.ValidateNetworkList(ctx, list)
		return err
	case "version":
		return json.NewEncoder(os.Stdout).Encode(list.CNIVersion)
	}
	return fmt.Errorf("unknown verb %q", verb)
}

func main() {
	var o order
	err := json.NewDecoder(os.Stdin).Decode(&o)
	if err == nil {
		err = serve(os.Args[1], o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

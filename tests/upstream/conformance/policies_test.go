// Package conformance_test runs the conformance suite of ClusterNetworkPolicy with limits that
// only catch a hang: how soon a machine with other work answers is not what is asked.
package conformance_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	policies "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	limits "sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

const patience = 2 * time.Minute

// Where the kernel has no SCTP, every case that meets it waits so long.
const untilConnected = 30 * time.Second

// TestNames prints the names of the suite's tests, one a line.
func TestNames(t *testing.T) {
	for _, each := range tests.ConformanceTests {
		fmt.Printf("name %s\n", each.ShortName)
	}
}

// TestConformance runs the suite, standard and experimental tests.
func TestConformance(t *testing.T) {
	cluster := config.GetConfigOrDie()
	typed := kubernetes.NewForConfigOrDie(cluster)
	untyped, err := client.New(cluster, client.Options{})
	if err == nil {
		err = policies.Install(untyped.Scheme())
	}
	if err != nil {
		t.Fatal(err)
	}
	made := suite.New(suite.Options{
		Client:                     untyped,
		ClientSet:                  typed,
		KubeConfig:                 *cluster,
		CleanupBaseResources:       true,
		EnableAllSupportedFeatures: true,
		TimeoutConfig: limits.TimeoutConfig{
			CreateTimeout: patience,
			DeleteTimeout: patience,
			GetTimeout:    patience,
			PokeTimeout:   untilConnected,
		},
	})
	made.Setup(t)
	made.Run(t, tests.ConformanceTests)
}

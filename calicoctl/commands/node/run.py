"""`node run`: the flags; what happens is in `calicoctl.node.start`.

Tested in tests/calicoctl/test_node_run.py.
"""

from __future__ import annotations

import click

from calicoctl.cli import common_options, config_option, examples

_METHODS = "first-found, can-reach=HOST, interface=REGEX,..., skip-interface=REGEX,..."


@click.command(
    "run",
    epilog=examples(
        "calicoctl node run --ip autodetect --ip-autodetection-method can-reach=10.0.0.1",
        "calicoctl node run --node-image docker.io/calico/node:v3.32.1 --dryrun",
    ),
)
@click.option("--name", default="", help="The node's name; the host name by default.")
@click.option("--ip", default="", help="IPv4 address of the node, with or without its mask.")
@click.option("--ip6", default="", help="IPv6 address of the node.")
@click.option("--as", "as_number", default="", metavar="ASN", help="AS number of the node.")
@click.option("--ip-autodetection-method", "ip_method", default="", help=_METHODS)
@click.option("--ip6-autodetection-method", "ip6_method", default="", help="As for --ip.")
@click.option("--log-dir", default="/var/log/calico", show_default=True, help="Where logs go.")
@click.option(
    "--node-image",
    default="",
    metavar="IMAGE",
    help="Run this container image with docker or podman, not the calico-node installed here.",
)
@click.option(
    "--backend",
    default="bird",
    show_default=True,
    help="bird: BGP; vxlan: no BGP, routes from the datastore; none: policy only.",
)
@click.option("--dryrun", is_flag=True, help="Print the command that would be run.")
@click.option("--init-system", is_flag=True, help="Stay in the foreground for a service manager.")
@click.option("--no-default-ippools", is_flag=True, help="Make no address pools.")
@click.option("--felix-config", default="", metavar="FILE", help="Felix's configuration file.")
@config_option
@common_options
def run(
    name: str,
    ip: str,
    ip6: str,
    as_number: str,
    ip_method: str,
    ip6_method: str,
    log_dir: str,
    node_image: str,
    backend: str,
    dryrun: bool,
    init_system: bool,
    no_default_ippools: bool,
    felix_config: str,
    config: str | None,
) -> None:
    """Run this machine as a node of the cluster; the datastore must be etcd.

    Without --node-image the calico-node that is installed here takes our place and stays in the
    foreground; where none is installed, a container of the default image is run.
    """
    from calicoctl.node import start
    from calicoctl.node.image import RunSettings

    settings = RunSettings(
        name=name or start.default_name(),
        ip=ip,
        ip6=ip6,
        as_number=as_number,
        ip_method=ip_method,
        ip6_method=ip6_method,
        log_dir=log_dir,
        image=node_image,
        backend=backend,
        init_system=init_system,
        no_default_ippools=no_default_ippools,
        felix_config=felix_config,
    )
    start.run(settings, config, dryrun)

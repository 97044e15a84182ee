#!/bin/bash
# The first process of a guest: the host's tree read-only below a tmpfs, /out of the host, one command.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
off() { echo "guest: $*"; sync; exec /usr/sbin/poweroff -f; }
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /mnt || off "no tmpfs"
mkdir -p /mnt/upper /mnt/work /mnt/root
insmod "/usr/lib/uml/modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko" || off "no overlayfs"
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root || off "no overlay"
root=/mnt/root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t devtmpfs dev $root/dev
mkdir -p $root/dev/pts $root/dev/shm
mount -t devpts devpts $root/dev/pts
mount -t tmpfs tmpfs $root/dev/shm
mount -t tmpfs -o mode=755 tmpfs $root/run
mkdir -p $root/run/netns $root/run/lock $root/out $root/lib/modules
# /tmp stays what the overlay shows: the tree itself may lie there.
mount -t hostfs -o "$GUEST_OUT" none $root/out || off "no /out"
mount --bind /usr/lib/uml/modules $root/lib/modules
cd $root || off "no root"
# Not chroot alone: who enters a mount namespace comes out at its real root.
mkdir -p /mnt/upper/host
pivot_root . host || off "no pivot_root"
umount -l /host
ip link set lo up
hostname guest
setsid -w bash /out/command.sh </dev/null 2>&1
echo $? >/out/code
sync
exec /usr/sbin/poweroff -f

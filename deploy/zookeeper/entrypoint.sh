#!/bin/sh
# Writes zoo.cfg and myid from the environment, then becomes the JVM.
set -eu
{
  echo "dataDir=/data"
  echo "clientPort=2181"
  echo "tickTime=$ZOO_TICK_TIME"
  echo "initLimit=$ZOO_INIT_LIMIT"
  echo "syncLimit=$ZOO_SYNC_LIMIT"
  echo "admin.enableServer=false"
  echo "maxClientCnxns=0"
  echo "4lw.commands.whitelist=srvr,ruok,mntr"
  echo "autopurge.purgeInterval=${ZOO_PURGE_HOURS:-1}" # 0: never
  for server in $ZOO_SERVERS; do echo "$server"; done
} >/data/zoo.cfg
echo "$ZOO_MY_ID" >/data/myid
# A server resolves its peers' names once, when it reads zoo.cfg, and Docker knows only containers that run: a name that
# does not resolve then costs a whole initLimit at the election which that peer wins. Wait a little for them.
for server in $ZOO_SERVERS; do
  host=${server#*=}
  host=${host%%:*}
  tries=50
  until getent hosts "$host" >/dev/null || [ "$tries" -eq 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
done
# The JVM must not remember addresses either: a container that starts again may have another one. Health checks are not
# worth a line each.
exec java -Xms32m "-Xmx${ZOO_HEAP_MB}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
  -Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0 \
  -Dzookeeper.electionPortBindRetry=0 -Dzookeeper.preAllocSize=1024 -Dorg.slf4j.simpleLogger.defaultLogLevel=info \
  -Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn \
  -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /data/zoo.cfg

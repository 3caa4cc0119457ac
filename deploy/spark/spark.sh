#!/bin/sh
# spark master | spark worker MASTER | spark COMMAND...: one process of the Spark cluster, or a driver beside it.
# SPARK_PUBLIC_NAME is the name under which the others find this container.
set -eu
SPARK_HOME=$(python3 -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
export SPARK_HOME PYSPARK_PYTHON=python3
run() { exec "$SPARK_HOME/bin/spark-class" "org.apache.spark.deploy.$@" --host "$SPARK_PUBLIC_NAME" --webui-port 8080; }
case ${1:-} in
master) run master.Master --port 7077 ;;
worker) run worker.Worker "$2" --work-dir /tmp/work ;;
*)
  SPARK_LOCAL_IP=$(hostname -i) # where the workers find the driver
  export SPARK_LOCAL_IP
  exec "$@"
  ;;
esac

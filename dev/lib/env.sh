# shellcheck shell=bash
# Sourced by every command in dev/: where things are, and the environment that Airflow, Spark and Java run in.
# Everything a command writes stays inside the checkout: .venv, .kafka, .airflow, .demo, .setup (all in .gitignore).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv="$root/.venv"
python="$venv/bin/python"
setup_dir="$root/.setup"
object_store="$setup_dir/object-store"
kafka_version=${KSTREAMS_DEV_KAFKA_VERSION:-4.2.1}
kafka_streams_version=4.3.0
kafka_libs="$root/.kafka/libs-$kafka_version"
kafka_streams_libs="$root/.kafka/streams-$kafka_streams_version"
spark_kafka_version=4.2.0
spark_kafka_libs="$root/.kafka/spark-kafka-$spark_kafka_version"
rocksdb_version=10.1.3
rocksdb_libs="$root/.kafka/rocksdb-$rocksdb_version"
parallel_consumer_version=0.5.3.2
parallel_consumer_libs="$root/.kafka/parallel-consumer-$parallel_consumer_version"

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$1" >&2; shift; for line in "$@"; do printf '       %s\n' "$line" >&2; done; exit 1; }

# Print the major version of a java command (1.8 counts as 8), or nothing.
java_major() {
  "$1" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

# Put a Java of 17 or newer first, if there is one: JAVA_HOME, PATH, then where systems keep them.
find_java() {
  local candidate major
  for candidate in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" \
    /usr/lib/jvm/*/bin/java /usr/java/*/bin/java /opt/java/*/bin/java; do
    [[ -x "$candidate" ]] || continue
    major=$(java_major "$candidate")
    if [[ -n "$major" && "$major" -ge 17 ]]; then
      JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$candidate")")")
      export JAVA_HOME PATH="$JAVA_HOME/bin:$PATH"
      return 0
    fi
  done
  return 1
}

# Java reads and writes the names of files in the locale's encoding.
if [[ "$(locale charmap 2>/dev/null)" != UTF-8 ]]; then
  export LC_ALL=C.UTF-8
fi

# pip, uv and Ivy need a folder they may write to; a service account often has none.
if [[ -z "${HOME:-}" || ! -w "$HOME" ]]; then
  export HOME="$setup_dir/home"
  mkdir -p "$HOME"
fi

export PATH="$venv/bin:$PATH"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
export PYSPARK_PYTHON="$python" PYSPARK_DRIVER_PYTHON="$python" SPARK_LOCAL_IP=127.0.0.1
export KSTREAMS_DEV_KAFKA_LIBS="$kafka_libs" KSTREAMS_DEV_STREAMS_LIBS="$kafka_streams_libs"
export KSTREAMS_DEV_SPARK_KAFKA_LIBS="$spark_kafka_libs" KSTREAMS_DEV_ROCKSDB_LIBS="$rocksdb_libs"
export KSTREAMS_DEV_PARALLEL_CONSUMER_LIBS="$parallel_consumer_libs"
# A spark-submit or a Hadoop of the machine must not shadow the pinned one; and spark-submit itself finds its home
# by a command in which it quotes no path.
SPARK_HOME=$(compgen -G "$venv/lib/python3.*/site-packages/pyspark" || printf %s "$venv/lib/python3.11/site-packages/pyspark")
export SPARK_HOME
unset SPARK_CONF_DIR HADOOP_CONF_DIR

export AIRFLOW_HOME="${KSTREAMS_DEV_AIRFLOW_HOME:-$root/.airflow}"
export AIRFLOW__CORE__DAGS_FOLDER="$root/dags"
export AIRFLOW__CORE__LOAD_EXAMPLES=False
export AIRFLOW__CORE__AUTH_MANAGER=airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager
export AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True
export AIRFLOW__CORE__EXECUTOR=LocalExecutor
export AIRFLOW__DATABASE__SQL_ALCHEMY_CONN="sqlite:///$AIRFLOW_HOME/airflow.db"
export AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False

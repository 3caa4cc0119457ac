"""The settings of Spark: those that the jobs always need, and those that suit them unless the user chose others."""

from __future__ import annotations

from sparkjobs.engine.spark.session import REQUIRED, settings_for


def test_settings_of_spark_submit_stand_unless_the_jobs_rest_on_others() -> None:
    told = {"spark.master": "spark://a:7077", "spark.driver.memory": "8g", "spark.sql.files.maxPartitionBytes": "1g"}
    settings = settings_for(None, told)
    assert settings["spark.driver.memory"] == "8g"
    assert settings.items() >= REQUIRED.items()


def test_only_on_one_machine_are_there_few_partitions() -> None:
    of = "spark.sql.shuffle.partitions"
    assert settings_for(None, {})[of] == settings_for("local[8]", {})[of] == "4"
    assert of not in settings_for("spark://a:7077", {})
    assert of not in settings_for(None, {"spark.master": "spark://a:7077"})

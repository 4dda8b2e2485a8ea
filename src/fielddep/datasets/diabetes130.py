"""Diabetes130: is a diabetic patient readmitted to hospital within 30 days? Stays in 130 US hospitals, 1999 to 2008.

Patients come back, so all stays of a patient are in one part, and evidence of a stay is never that of another stay of
the same patient (`split.group`). `encounter_id` numbers the rows and is dropped.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFile, RawFiles, delimited_table
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import group_split, with_split
from fielddep.errors import TableError

NUMBERS = (
    *("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications"),
    *("number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses"),
)
FIELDS = (
    *("race", "gender", "age", "weight", "admission_type_id", "discharge_disposition_id", "admission_source_id"),
    *("time_in_hospital", "payer_code", "medical_specialty", "num_lab_procedures", "num_procedures"),
    *("num_medications", "number_outpatient", "number_emergency", "number_inpatient", "diag_1", "diag_2", "diag_3"),
    *("number_diagnoses", "max_glu_serum", "A1Cresult", "metformin", "repaglinide", "nateglinide", "chlorpropamide"),
    *("glimepiride", "acetohexamide", "glipizide", "glyburide", "tolbutamide", "pioglitazone", "rosiglitazone"),
    *("acarbose", "miglitol", "troglitazone", "tolazamide", "examide", "citoglipton", "insulin"),
    *("glyburide-metformin", "glipizide-metformin", "glimepiride-pioglitazone", "metformin-rosiglitazone"),
    *("metformin-pioglitazone", "change", "diabetesMed"),
)
TARGET = "readmitted"
PATIENT = "patient_nbr"
SOON = "<30"
FILE = "diabetic_data.csv"


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """Stays, and whether the patient came back soon; patients are split 8:1:1 at random."""
    raw = delimited_table(files[FILE], ",", (PATIENT, *FIELDS, TARGET))
    # "?" is documented as a missing cell; "None" (test not taken) is a value.
    raw = raw.with_columns(pl.col(FIELDS).replace({"?": None, "": None}))
    _refuse_non_numbers(files, raw)
    frame = raw.select(
        *(pl.col(name).cast(pl.Int64) if name in NUMBERS else pl.col(name) for name in FIELDS),
        (pl.col(TARGET) == SOON).cast(pl.Int8),
        PATIENT,
    )
    return with_split(frame, group_split(raw[PATIENT].to_numpy(), np.random.default_rng(seed)))


def _refuse_non_numbers(files: RawFiles, raw: pl.DataFrame) -> None:
    for name in NUMBERS:
        bad = raw[name].is_not_null() & raw[name].cast(pl.Int64, strict=False).is_null()
        if bad.any():
            row = int(bad.arg_true()[0])
            raise TableError(
                f"{files[FILE]}, row {row + 1}: expected a whole number as {name}, found {raw[name][row]!r}; correct "
                "the row"
            )


RECIPE = TableRecipe(
    facts=Facts(
        name="diabetes130",
        title="readmission of diabetic patients to hospital",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=101_766,
        parts=(81_390, 10_169, 10_207),
        positives=11_357,
        categories=2_694,
        page="https://archive.ics.uci.edu/dataset/296",
        terms="CC BY 4.0 (UCI)",
        note="split by patient; eight fields are numbers, in bins",
    ),
    versions=((RawFile(name=FILE, n_bytes=19_159_383),),),
    archives=("diabetes130.zip", "diabetes+130-us+hospitals+for+years+1999-2008.zip"),
    settings={
        "data.kinds": {name: "numerical" if name in NUMBERS else "categorical" for name in FIELDS},
        # As many as the rows allow: the committed figures rest on them.
        "data.n_bins": 64,
        "split.group": PATIENT,
    },
    build=build,
)

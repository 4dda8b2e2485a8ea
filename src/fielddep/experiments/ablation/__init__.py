"""The paper's questions to MDL: variants, sparsity, steps and depth, answered by trainings on one table.

plan, points        what is asked, and which settings that means
run, trainings      one training and its figures; all of them
measures, results   figures of a trained model; figures of a question over seeds
verdicts, claims    whether a claim holds; the claims of the paper
tables, plots       how answers are shown
files, ablate       where they are kept; everything in order
"""

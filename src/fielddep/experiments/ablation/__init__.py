"""The paper's questions about MDL: variants, sparsity, steps and depth, answered by trainings on one table.

plan        what is asked, and which settings that means
parts       what is asked besides: what each part of the model adds
trainings   the trainings, and what is measured on each
claims      the claims of the paper, and whether they hold
tables      how answers are shown
ablate      everything in order, and where it is kept
"""

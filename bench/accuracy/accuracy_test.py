#!/usr/bin/env python3
"""What the accuracy scripts compute by themselves, against figures worked out otherwise."""

import random
import types
import unittest

import evaluation
import low_rank
import recall
import report
import tables


class Evaluation(unittest.TestCase):
    def test_wilson_solves_its_equation(self):
        """Wilson's limits are the shares p from which the observed share lies z standard errors away."""
        for failures, n in ((0, 60), (3, 60), (60, 60), (7, 20)):
            for limit in evaluation.wilson(failures, n):
                if 0 < limit < 1:
                    off = abs(failures / n - limit)
                    self.assertAlmostEqual(off, 1.96 * (limit * (1 - limit) / n) ** 0.5)

    def test_resident_ratio_counts_bytes(self):
        figures = {"n_exact": 256, "n_compressed": 1024, "n_offloaded": 512, "bits_per_element": 4.0}
        self.assertAlmostEqual(evaluation.resident_ratio(figures), (1792 * 2.0) / (256 * 2 + 1024 * 0.5))
        figures["n_compressed"] = figures["n_offloaded"] = 0
        self.assertEqual(evaluation.resident_ratio(figures), 1)


class Recall(unittest.TestCase):
    def test_facts_lie_before_the_window_and_once(self):
        facts = list(recall.make_facts(random.Random(1), 14))
        paragraphs = [f"Paragraph {i} of a text.\nIt goes on." for i in range(600)]
        document = recall.plant(paragraphs, [sentence for sentence, _, _ in facts])
        for sentence, _, asked in facts:
            self.assertEqual(document.count(sentence), 1)
            at = document.index(sentence)
            self.assertGreater(at, recall.SINK_CHARACTERS)
            self.assertLess(at, len(document) - recall.WINDOW_CHARACTERS)
            self.assertEqual(asked[-5:], sentence.rstrip(".")[-5:])  # the answer, at the line's end

    def test_only_what_exact_knows_counts(self):
        questions = [types.SimpleNamespace(kind="copy", line=str(i)) for i in range(4)]
        exact = [(True, -0.1), (True, -0.2), (False, -3.0), (False, -3.0)]
        found = [(True, -0.1), (False, -1.2), (True, -0.5), (False, -3.0)]
        compared = recall.compare(questions, exact, found)
        self.assertEqual((compared["known"], compared["kept"], compared["gained"]), (2, 1, 1))
        self.assertEqual(compared["lost"], ["1"])
        self.assertAlmostEqual(compared["worst_loss"], 1.0)


class LowRank(unittest.TestCase):
    def test_the_ladder_is_read_between_its_rungs(self):
        rungs = [(4, 1e-3), (3, 1e-2), (5, 1e-4)]
        self.assertAlmostEqual(low_rank.bits_for(1e-3, rungs), 4)
        self.assertAlmostEqual(low_rank.bits_for(10**-2.5, rungs), 3.5)
        self.assertAlmostEqual(low_rank.bits_for(1e-4, rungs), 5)
        self.assertIsNone(low_rank.bits_for(2e-2, rungs))
        self.assertIsNone(low_rank.bits_for(9e-5, rungs))

    def test_means_over_texts_are_compared(self):
        def run(layout, bits, kld, text):
            return {"model": "m", "layout": layout, "bits_per_element": bits, "kld": kld, "text": text,
                    low_rank.BASIS: bits * 1.25}
        runs = [run("lr50", 8, kld, text) for kld, text in ((5e-4, "a"), (15e-4, "b"))]
        runs += [run(bits, float(bits), kld, "a") for bits, kld in (("3", 1e-2), ("4", 1e-3), ("5", 1e-4))]
        self.assertEqual(list(low_rank.ladder_table(runs))[2:],
                         ["| m | lr50 | .00100 | 8.00 | 4.00 | 2.00 | 2.50 |"])


class Report(unittest.TestCase):
    def test_newest_counts_and_requests_stay_apart(self):
        old = {"bench": "kld", "layout": "k5v4", "time": "2026-01-01", "kld": 1}
        new = {**old, "time": "2026-01-02", "kld": 2}
        requests = [{"bench": "harm", "request": i, "time": "2026-01-01"} for i in range(2)]
        found = report.newest([new, old, *requests])
        self.assertEqual(sorted(run.get("kld", 0) for run in found), [0, 0, 2])

    def test_fill_replaces_between_markers_only(self):
        document = "a\n<!-- t -->\nold\n<!-- /t -->\nb\n"
        self.assertEqual(report.fill(document, "t", ["new"]), "a\n<!-- t -->\nnew\n<!-- /t -->\nb\n")

    def test_three_digits(self):
        shown = [tables.nats(value) for value in (0, 0.00077249, 0.0460, 0.0000251, 1.5)]
        self.assertEqual(shown, [".000", ".000772", ".0460", ".0000251", "1.50"])


if __name__ == "__main__":
    unittest.main()

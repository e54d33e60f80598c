"""Rows as the hub has them: of openai/gsm8k, DigitalLearningGmbH/MATH-lighteval, allenai/ai2_arc and MBPP."""

GSM8K = {
    "question": "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How "
    "many clips did Natalia sell altogether in April and May?",
    "answer": "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72",
}
GSM8K_THOUSANDS = {"question": "How much is it?", "answer": "It is 1000 + 200 = $<<1000+200=1200>>1,200.\n#### $1,200"}
MATH = {
    "problem": "Let \\[f(x) = \\left\\{\n\\begin{array}{cl} ax+3, &\\text{ if }x>2, \\\\\n"
    "x-5 &\\text{ if } -2 \\le x \\le 2, \\\\\n2x-b &\\text{ if } x <-2.\n\\end{array}\n\\right.\\]"
    "Find $a+b$ if the piecewise function is continuous.",
    "level": "Level 5",
    "type": "Algebra",
    "solution": "For the piecewise function to be continuous, the cases must meet at $2$ and $-2$. "
    "So $a=-3$ and $b=3$, and $a+b=-3+3=\\boxed{0}$.",
}
MATH_FRACTION = {"problem": "Half of one?", "solution": "Half of one is $\\boxed{\\frac{1}{2}}$."}
ARC_LETTERS = {
    "id": "MCAS_2007_8_5189",
    "question": "What do the green algae supply to the fungi in lichens?",
    "choices": {"text": ["carbon dioxide", "food", "protection", "water"], "label": ["A", "B", "C", "D"]},
    "answerKey": "B",
}
ARC_DIGITS = {
    "id": "NYSEDREGENTS_2006_8_10",
    "question": "Rocks are classified as igneous, metamorphic, or sedimentary according to",
    "choices": {
        "text": ["their color", "their shape", "how they formed", "the minerals they contain"],
        "label": ["1", "2", "3", "4"],
    },
    "answerKey": "3",
}
MBPP = {
    "task_id": 1,
    "text": "Write a function to find the minimum cost path to reach (m, n) from (0, 0) for the given cost matrix "
    "cost[][] and a position (m, n) in cost[][].",
    "code": "R = 3\r\nC = 3\r\ndef min_cost(cost, m, n): \r\n\ttc = [[0 for x in range(C)] for x in range(R)] \r\n"
    "\ttc[0][0] = cost[0][0] \r\n\tfor i in range(1, m+1): \r\n\t\ttc[i][0] = tc[i-1][0] + cost[i][0] \r\n"
    "\tfor j in range(1, n+1): \r\n\t\ttc[0][j] = tc[0][j-1] + cost[0][j] \r\n\tfor i in range(1, m+1): \r\n"
    "\t\tfor j in range(1, n+1): \r\n"
    "\t\t\ttc[i][j] = min(tc[i-1][j-1], tc[i-1][j], tc[i][j-1]) + cost[i][j] \r\n\treturn tc[m][n]",
    "test_list": [
        "assert min_cost([[1, 2, 3], [4, 8, 2], [1, 5, 3]], 2, 2) == 8",
        "assert min_cost([[2, 3, 4], [5, 9, 3], [2, 6, 4]], 2, 2) == 12",
        "assert min_cost([[3, 4, 5], [6, 10, 4], [3, 7, 5]], 2, 2) == 16",
    ],
    "test_setup_code": "",
    "challenge_test_list": [],
}

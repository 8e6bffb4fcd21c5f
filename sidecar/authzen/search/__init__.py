"""AuthZEN search: finds the subjects, resources or actions that evaluation would allow.

handlers    reads a search, and shows one page of the results, with a token for the next
searches    the candidates of each search, judged by one revision of the policy set
claimants   who is judged: an agent in each role that it may claim; and the pace of searches,
            which keeps them from slowing decisions
"""

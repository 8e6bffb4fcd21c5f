"""AuthZEN search: which subjects, resources and actions evaluation would allow.

handlers    reads a search, and shows one page of what was found, with a token for the next
searches    the candidates of each search, judged by one revision of the policy set
claimants   who is judged: an agent in each role that it may claim
pace        keeps searches from slowing decisions
"""

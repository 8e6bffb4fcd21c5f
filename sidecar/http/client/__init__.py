"""Opens HTTP/1 connections to other servers, past a guard that checks each address, pools them, and
reads responses strictly. Knows neither policies nor which requests may be repeated."""

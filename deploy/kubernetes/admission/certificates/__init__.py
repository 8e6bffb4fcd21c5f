"""The webhook's certificate: serving it, and making and renewing it in a Secret."""

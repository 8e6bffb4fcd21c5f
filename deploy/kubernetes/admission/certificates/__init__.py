"""The certificate of the webhook's HTTPS port: serving it, and creating and renewing it in a
Secret."""

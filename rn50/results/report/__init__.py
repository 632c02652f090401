"""Write the HTML page of ``rn50 report``."""

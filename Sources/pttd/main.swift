print("pttd")

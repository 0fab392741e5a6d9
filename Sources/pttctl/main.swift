print("pttctl")

// An ALSA configuration of a test's own: real alsa-lib, without a card.
import Glibc

@testable import Audio

/// Runs `body` with a folder, and the environment in which a program finds the ALSA configuration in it.
func withALSA(_ configuration: (String) -> String, _ body: (String, [String: String]) throws -> Void) throws {
    let folder = temporaryPath("alsa")
    mkdir(folder, 0o700)
    defer { _ = Child(["rm", "-rf", folder])?.finish(within: .seconds(5)) }
    writeFile(folder + "/asound.conf", Array(("pcm.null { type null }\n" + configuration(folder)).utf8))
    try body(folder, ["ALSA_CONFIG_PATH": folder + "/asound.conf", "HOME": folder])
}

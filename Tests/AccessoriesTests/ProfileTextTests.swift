import TestSupport
// A profile written by a program is read as the same profile.
import Testing

@testable import Accessories

@Suite struct ProfileTextTests {
    @Test func everyShippedProfileSurvivesItsText() throws {
        for profile in ProfileLibrary.load(directory: nil).library.profiles {
            #expect(try AccessoryProfile(bytes: Array(profile.text.utf8), file: profile.id) == profile)
        }
    }

    @Test func anyProfileSurvivesItsText() throws {
        var random = SeededGenerator()
        for number in 0..<500 {
            let profile = AccessoryProfile.random(&random)
            do {
                let read = try AccessoryProfile(bytes: Array(profile.text.utf8), file: "profile \(number)")
                #expect(read == profile, "\(profile.text)")
                if read != profile { return }
            } catch {
                Issue.record("\(error)\n\(profile.text)")
                return
            }
        }
    }

    @Test func theTextSaysNoMoreThanItHasTo() throws {
        let profile = ProfileLibrary.load(directory: nil).library["ptt-z"]!
        let text = profile.text
        #expect(text.contains("pressed = 0x01\nreleased = 0x00\n"))
        for key in ["gesture", "experimental", "transport", "timing", "size", "toggle_only", "readable"] {
            #expect(!text.contains(key), "\(key)")
        }
    }
}

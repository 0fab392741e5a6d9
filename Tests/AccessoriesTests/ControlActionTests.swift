// What controls do, as people and programs write it.
import TestSupport
import Testing
import Vocabulary

@testable import Accessories

@Suite struct ControlActionTests {
    @Test(arguments: [
        ("none", ControlAction.none), ("transmit", .transmit), ("emergency", .emergency), ("channel-up", .channelUp),
        ("channel-down", .channelDown), ("replay-last", .replayLast), ("nearby-next", .nearbyNext),
        ("command: true", .command(["true"])),
        ("command:   play  \"/a b/c.wav\"  \"\" x\\y", .command(["play", "/a b/c.wav", "", "x\\y"])),
        ("command: say \"a \\\"b\\\" \\\\\"", .command(["say", "a \"b\" \\"])),
    ])
    func anActionIsReadFromItsText(text: String, action: ControlAction) {
        #expect(ControlAction(text) == action)
        #expect(ControlAction(action.text) == action)
    }

    @Test(arguments: [
        "", "Transmit", "transmit ", "command:", "command:  ", "command: \"open", "command: \"\" x", "command: a\"b\\",
        "run x", "command: \(String(repeating: "a ", count: 65))", "command: \(String(repeating: "a", count: 5000))",
    ])
    func whatIsNoActionIsRefused(text: String) { #expect(ControlAction(text) == nil) }

    @Test func anyCommandSurvivesItsText() {
        var random = SeededGenerator()
        // Among them scalars that make one character with a quote before or behind them.
        let letters = Array("ab \"\\\t'é\n\u{301}\u{600}\u{200D}".unicodeScalars)
        for _ in 0..<2_000 {
            let words = (0..<Int.random(in: 1...6, using: &random)).map { index in
                let count = Int.random(in: index == 0 ? 1...5 : 0...5, using: &random)
                var word = ""
                for _ in 0..<count { word.unicodeScalars.append(letters.randomElement(using: &random)!) }
                return word
            }
            #expect(ControlAction(ControlAction.command(words).text) == .command(words))
        }
    }

    @Test func talkControlsTalkAndNamedOnesDoWhatTheyAreCalled() {
        #expect(Control.allCases.filter { $0.defaultAction == .transmit } == [.ptt, .ptt2])
        #expect(Control.emergency.defaultAction == .emergency)
        #expect(Control.channelUp.defaultAction == .channelUp && Control.channelDown.defaultAction == .channelDown)
        #expect(Control.next.defaultAction == .none && Control.soft1.defaultAction == .none)
        let itag = ProfileLibrary.load(directory: nil).library["itag"]!
        #expect(itag.talkGesture(of: .ptt, wanted: .hold) == .toggle)
        var button = ProfileLibrary.load(directory: nil).library["aina-v2"]!
        #expect(button.talkGesture(of: .ptt) == .hold && button.talkGesture(of: .ptt, wanted: .hybrid) == .hybrid)
        #expect(button.talkGesture(of: .soft1) == .hold)
        button.gestures[.ptt2] = Gesture.none
        #expect(button.defaultAction(of: .ptt2) == .none && button.defaultAction(of: .ptt) == .transmit)
        #expect(button.defaultAction(of: .emergency) == .emergency)
    }
}

// The accessories' part of pttd.toml.
import Settings
import Testing
import Vocabulary

@testable import Accessories

private func read(_ text: String, allowsCommands: Bool = false) throws(SettingsError) -> AccessorySettings {
    try SettingsFile.read(text: text, file: "pttd.toml") {
        AccessorySettings(settings: $0, allowsCommands: allowsCommands)
    }
}

@Suite struct AccessorySettingsTests {
    @Test func accessoriesAreReadByName() throws {
        let settings = try read(
            """
            [accessories]
            automatic = false
            profiles = "/nonexistent"
            [accessory.vest]
            address = "aa:bb:cc:dd:ee:ff"
            profile = "ptt-z"
            gesture = "toggle"
            [accessory."spare one"]
            name = "ELET-PTT*"
            """)
        #expect(!settings.takesKnownDevices)
        #expect(
            settings.accessories == [
                AccessoryConfiguration(
                    id: AccessoryID("vest"), address: "AA:BB:CC:DD:EE:FF", profileID: "ptt-z", gesture: .toggle),
                AccessoryConfiguration(id: AccessoryID("spare one"), name: NamePattern("ELET-PTT*")),
            ])
    }

    @Test func anEmptyFileTakesKnownDevices() throws {
        let settings = try read("")
        #expect(settings.takesKnownDevices)
        #expect(settings.accessories.isEmpty)
        #expect(settings.library.profiles.count >= ProfileLibrary.shippedFiles.count)
    }

    @Test func bindingsBondsAndTheMediaPlayerAreRead() throws {
        let settings = try read(
            """
            [accessories]
            media-player = true
            bonded-only = true
            [accessory.vest]
            address = "aa:bb:cc:dd:ee:ff"
            profile = "aina-v2"
            gesture = "hybrid"
            [accessory.vest.bind]
            soft1 = "channel-up"
            soft2 = ["/usr/bin/notify-send", "Help me"]
            ptt2 = "none"
            [accessory.pedal]
            profile = "foot-switch"
            bonded-only = false
            [accessory.media-player]
            gesture = "toggle"
            """, allowsCommands: true)
        #expect(settings.registersMediaPlayer && settings.isBondedOnly)
        #expect(
            settings.accessories.first?.bindings == [
                .soft1: .channelUp, .soft2: .command(["/usr/bin/notify-send", "Help me"]), .ptt2: ControlAction.none,
            ])
        #expect(settings.accessories.map(\.isBondedOnly) == [true, false, true])
        #expect(settings.accessories.map(\.id.text) == ["vest", "pedal", "media-player"])
    }

    @Test(arguments: [
        ("soft1 = \"chanel-up\"", "did you mean \"channel-up\"?"),
        ("soft1 = [\"notify-send\", \"x\"]", "is not an action"),
        ("soft1 = [\"/bin/true\"]", "only a user's own daemon"),
        ("soft1 = \"command: /bin/true\"", "only a user's own daemon"),
        ("soft9 = \"transmit\"", "is not known"), ("volume-up = \"transmit\"", "is not a control of profile"),
    ])
    func mistakesInBindingsAreExplained(line: String, message: String) {
        let text = "[accessory.vest]\nname = \"X\"\nprofile = \"aina-v2\"\n[accessory.vest.bind]\n\(line)"
        #expect {
            try read(text)
        } throws: { "\($0)".contains("5:") && "\($0)".contains(message) }
    }

    @Test func aHoldOnAProfileThatTellsNoReleaseIsRefused() {
        #expect {
            try read("[accessory.media-player]\nprofile = \"headset-play-pause\"\ngesture = \"hold\"")
        } throws: { "\($0)".contains("tells no release") }
    }

    @Test(arguments: [
        ("address = \"aa:bb:cc:dd:ee\"", "is not a Bluetooth address; write \"00:11:22:33:44:55\""),
        ("profile = \"ptt-z\"", "says neither address nor name"),
        ("name = \"*\"", "matches every device"),
        ("name = \"X\"\nprofile = \"pttz\"", "did you mean \"ptt-z\"?"),
        ("name = \"X\"\ngesture = \"none\"", "write one of \"hold\", \"toggle\""),
        ("adress = \"aa:bb:cc:dd:ee:ff\"", "did you mean 'address'?"),
    ])
    func mistakesAreExplained(line: String, message: String) {
        #expect {
            try read("[accessory.vest]\n\(line)")
        } throws: { "\($0)".contains("accessory.vest") && "\($0)".contains(message) }
    }
}

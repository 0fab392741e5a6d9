// The accessories' part of pttd.toml.
import Settings
import Testing

@testable import Accessories

private func read(_ text: String) throws(SettingsError) -> AccessorySettings {
    try SettingsFile.read(text: text, file: "pttd.toml") { AccessorySettings(settings: $0) }
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

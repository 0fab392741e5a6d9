// The profile files in the program, each named once.

extension ProfileLibrary {
    /// The profile files in the program: name and contents.
    public static let shippedFiles: [(name: String, bytes: [UInt8])] = [
        PackageResources.aina_serial_toml,
        PackageResources.aina_v1_spp_toml,
        PackageResources.aina_v2_toml,
        PackageResources.anytone_elet_toml,
        PackageResources.bt_85_toml,
        PackageResources.bthome_toml,
        PackageResources.clickoris_toml,
        PackageResources.coda_ble_toml,
        PackageResources.common_spp_toml,
        PackageResources.ffe0_button_toml,
        PackageResources.flic_toml,
        PackageResources.foot_switch_toml,
        PackageResources.headset_play_pause_toml,
        PackageResources.hsp_button_toml,
        PackageResources.iasus_ig_ptt_alt_toml,
        PackageResources.iasus_ig_ptt_toml,
        PackageResources.inrico_b01_ble_toml,
        PackageResources.inrico_b01_spp_toml,
        PackageResources.inrico_b02_toml,
        PackageResources.itag_toml,
        PackageResources.key_hold_toml,
        PackageResources.mbed_button_toml,
        PackageResources.micro_bit_toml,
        PackageResources.motorola_ocw_toml,
        PackageResources.motorola_ptt_pod_toml,
        PackageResources.motorola_wm500_kodiak_toml,
        PackageResources.motorola_wm500_toml,
        PackageResources.nordic_lbs_toml,
        PackageResources.pryme_bth_ble_toml,
        PackageResources.ptt_z_toml,
        PackageResources.sco_microphone_toml,
        PackageResources.td_q2l_toml,
        PackageResources.ti_simple_key_toml,
        PackageResources.usb_phone_toml,
        PackageResources.volume_remote_toml,
        PackageResources.xevent_talk_toml,
    ].map { (name: fileName($0), bytes: $0) }

    /// A file is called as its profile: `id = "ptt-z"` is in ptt-z.toml.
    private static func fileName(_ bytes: [UInt8]) -> String {
        let start = Array("id = \"".utf8)
        let line = bytes.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: start) } ?? []
        return String(decoding: line.dropFirst(start.count).prefix { $0 != UInt8(ascii: "\"") }, as: UTF8.self)
            + ".toml"
    }
}
